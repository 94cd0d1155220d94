package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/time/rate"
)

// naive: rate-limiter
func newSlowClient(config *rest.Config) (client.Client, error) {
	slow := rest.CopyConfig(config)
	// Two requests a second. The client waits before each request, so between a read and the write that follows, too.
	slow.QPS, slow.Burst = 2, 1
	return client.New(slow, client.Options{})
}

func (r *Reconciler) setColourSlowly(ctx context.Context, key client.ObjectKey) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var settings corev1.ConfigMap
		if err := r.Get(ctx, key, &settings); err != nil {
			return err
		}
		settings.Data["colour"] = "blue"
		// It is sent half a second after the read: by then the copy is old.
		return r.Update(ctx, &settings)
	})
	if err != nil {
		return fmt.Errorf("set the colour of settings: %w", err)
	}
	return nil
}

// end

// right: rate-limiter
// PacedReconciler has a client without a limit of its own (QPS is -1 in its rest.Config), and one limiter for all objects.
// The RateLimiter in the options of a controller is no substitute: it delays only what comes back after an error.
type PacedReconciler struct {
	client.Client
	pace *rate.Limiter // rate.NewLimiter(2, 1): two attempts a second
}

func (r *PacedReconciler) setColour(ctx context.Context, key client.ObjectKey) error {
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1, Jitter: 0.5, Steps: 20}
	err := retry.RetryOnConflict(backoff, func() error {
		// One token for an attempt, before its read: nothing waits between the read and the write.
		if err := r.pace.Wait(ctx); err != nil {
			return err
		}
		var settings corev1.ConfigMap
		if err := r.Get(ctx, key, &settings); err != nil {
			return err
		}
		settings.Data["colour"] = "blue"
		return r.Update(ctx, &settings)
	})
	if err != nil {
		return fmt.Errorf("set the colour of settings: %w", err)
	}
	return nil
}

// end
