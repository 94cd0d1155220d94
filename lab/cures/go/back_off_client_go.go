package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// naive: back-off
func setColourFiveTimes(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	var err error
	for range 5 {
		settings, getErr := maps.Get(ctx, "settings", metav1.GetOptions{})
		if getErr != nil {
			return fmt.Errorf("get settings: %w", getErr)
		}
		settings.Data["colour"] = "blue"
		_, err = maps.Update(ctx, settings, metav1.UpdateOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("update settings: %w", err)
		}
		// No pause: all five attempts are over while the crowd is still at work.
	}
	return fmt.Errorf("update settings, five attempts: %w", err)
}

// end

// right: back-off
func setColourPatiently(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	backoff := wait.Backoff{
		Duration: 10 * time.Millisecond,
		Factor:   2,               // each pause is about twice the last
		Jitter:   0.5,             // clients that failed together do not come back together
		Steps:    9,               // attempts
		Cap:      3 * time.Second, // the longest pause; a pause that would be longer ends the attempts
	}
	err := retry.RetryOnConflict(backoff, func() error {
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
