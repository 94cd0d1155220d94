package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: back-off
func (r *Reconciler) setColourByDefault(ctx context.Context, key client.ObjectKey) error {
	// DefaultRetry makes five attempts, about 10 ms apart: they end while the other writers are still at work.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var settings corev1.ConfigMap
		if err := r.Get(ctx, key, &settings); err != nil {
			return err
		}
		settings.Data["colour"] = "blue"
		return r.Update(ctx, &settings)
	})
	if err != nil {
		return fmt.Errorf("update settings, five attempts: %w", err)
	}
	return nil
}

// end

// right: back-off
func (r *Reconciler) setColourPatiently(ctx context.Context, key client.ObjectKey) error {
	backoff := wait.Backoff{
		Duration: 10 * time.Millisecond,
		Factor:   2,               // each pause is about twice the last
		Jitter:   0.5,             // clients that failed together do not come back together
		Steps:    9,               // attempts
		Cap:      3 * time.Second, // the longest pause; a pause that would be longer ends the attempts
	}
	err := retry.RetryOnConflict(backoff, func() error {
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
