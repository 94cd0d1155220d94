package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"golang.org/x/time/rate"
)

// naive: rate-limiter
func newSlowClients(config *rest.Config) (*kubernetes.Clientset, error) {
	slow := rest.CopyConfig(config)
	// Two requests a second. The client waits before each request, so between a read and the write that follows, too.
	slow.QPS, slow.Burst = 2, 1
	return kubernetes.NewForConfig(slow)
}

func setColourSlowly(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		settings.Data["colour"] = "blue"
		// It is sent half a second after the read: by then the copy is old.
		_, err = maps.Update(ctx, settings, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("set the colour of settings: %w", err)
	}
	return nil
}

// end

// right: rate-limiter
func newPace() *rate.Limiter { return rate.NewLimiter(2, 1) }

// The client has no limit of its own: QPS is -1 in its rest.Config.
func setColourAtPace(ctx context.Context, maps corev1client.ConfigMapInterface, pace *rate.Limiter) error {
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1, Jitter: 0.5, Steps: 20}
	err := retry.RetryOnConflict(backoff, func() error {
		// One token for an attempt, before its read: nothing waits between the read and the write.
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		settings.Data["colour"] = "blue"
		_, err = maps.Update(ctx, settings, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("set the colour of settings: %w", err)
	}
	return nil
}

// end
