package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// naive: finalizer
func (r *Reconciler) patchFinalizers(ctx context.Context, key client.ObjectKey) error {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, key, &settings); err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	before := settings.DeepCopy()
	controllerutil.AddFinalizer(&settings, "example.com/mine")
	// A merge patch replaces the whole list. A finalizer that was added since the read is lost.
	if err := r.Patch(ctx, &settings, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch the finalizers of settings: %w", err)
	}
	return nil
}

// end

// right: finalizer
func (r *Reconciler) addFinalizer(ctx context.Context, key client.ObjectKey) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var settings corev1.ConfigMap
		if err := r.Get(ctx, key, &settings); err != nil {
			return err
		}
		before := settings.DeepCopy()
		if !controllerutil.AddFinalizer(&settings, "example.com/mine") {
			return nil
		}
		// The patch carries the version that was read: a list from an old copy is refused.
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return r.Patch(ctx, &settings, patch)
	})
	if err != nil {
		return fmt.Errorf("add a finalizer to settings: %w", err)
	}
	return nil
}

// end
