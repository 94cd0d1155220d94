package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: write-only-your-field
func (r *Reconciler) forceColour(ctx context.Context, key client.ObjectKey) error {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, key, &settings); err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	settings.Data["colour"] = "blue"
	// Without a version the server cannot see a conflict. Every other field goes back to the copy.
	settings.ResourceVersion = ""
	if err := r.Update(ctx, &settings); err != nil {
		return fmt.Errorf("update settings: %w", err)
	}
	return nil
}

// end

// right: write-only-your-field
func (r *Reconciler) patchColour(ctx context.Context, key client.ObjectKey) error {
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	// The patch is the difference from an empty object: the colour and nothing else.
	before := settings.DeepCopy()
	settings.Data = map[string]string{"colour": "blue"}
	if err := r.Patch(ctx, settings, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch the colour of settings: %w", err)
	}
	return nil
}

// end
