package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: change-a-field
func (r *Reconciler) setColourOnce(ctx context.Context, key client.ObjectKey) error {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, key, &settings); err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	settings.Data["colour"] = "blue"
	// A conflict is expected sooner or later. Here it fails the whole task.
	if err := r.Update(ctx, &settings); err != nil {
		return fmt.Errorf("update settings: %w", err)
	}
	return nil
}

// end

// right: change-a-field
func (r *Reconciler) setColour(ctx context.Context, key client.ObjectKey) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		// Each attempt reads again. The client must read from the API server, not from a cache.
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
