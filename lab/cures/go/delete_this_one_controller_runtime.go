package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: delete-this-one
func (r *Reconciler) deleteByName(ctx context.Context, key client.ObjectKey) error {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, key, &settings); err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	// Delete sends only the name. It may belong to another object by now.
	if err := r.Delete(ctx, &settings); err != nil {
		return fmt.Errorf("delete settings: %w", err)
	}
	return nil
}

// end

// right: delete-this-one
func (r *Reconciler) deleteThisOne(ctx context.Context, key client.ObjectKey) error {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, key, &settings); err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	// The UID names this one object, the version names the state that was read.
	preconditions := client.Preconditions{UID: &settings.UID, ResourceVersion: &settings.ResourceVersion}
	if err := r.Delete(ctx, &settings, preconditions); err != nil {
		return fmt.Errorf("delete the settings that were read: %w", err)
	}
	return nil
}

// end
