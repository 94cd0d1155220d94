package main

import (
	"context"
	"fmt"

	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: field-manager
func (r *Reconciler) applyBothFields(ctx context.Context, key client.ObjectKey) error {
	settings := corev1apply.ConfigMap(key.Name, key.Namespace).
		WithData(map[string]string{"shade": "dark", "colour": "blue"})
	// The colour has another owner. No retry changes that: each attempt gets the same 409.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return r.Apply(ctx, settings, client.FieldOwner("mine"))
	})
	if err != nil {
		return fmt.Errorf("apply settings: %w", err)
	}
	return nil
}

// end

// right: field-manager
func (r *Reconciler) applyShade(ctx context.Context, key client.ObjectKey) error {
	// Apply only the fields that are yours to set.
	settings := corev1apply.ConfigMap(key.Name, key.Namespace).
		WithData(map[string]string{"shade": "dark"})
	if err := r.Apply(ctx, settings, client.FieldOwner("mine")); err != nil {
		return fmt.Errorf("apply the shade of settings: %w", err)
	}
	return nil
}

// end
