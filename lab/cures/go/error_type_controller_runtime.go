package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: error-type
func (r *Reconciler) saveColourAsText(ctx context.Context, key client.ObjectKey) error {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, key, &settings); err != nil {
		return fmt.Errorf("get settings: %v", err)
	}
	settings.Data["colour"] = "blue"
	if err := r.Update(ctx, &settings); err != nil {
		return fmt.Errorf("update settings: %v", err) // %v keeps the text and loses the type
	}
	return nil
}

func (r *Reconciler) explainText(ctx context.Context, key client.ObjectKey) string {
	switch err := r.saveColourAsText(ctx, key); {
	case err == nil:
		return "saved"
	case apierrors.IsConflict(err):
		return "conflict"
	default:
		return "other"
	}
}

// end

// right: error-type
func (r *Reconciler) saveColour(ctx context.Context, key client.ObjectKey) error {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, key, &settings); err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	settings.Data["colour"] = "blue"
	if err := r.Update(ctx, &settings); err != nil {
		return fmt.Errorf("update settings: %w", err) // IsConflict looks through %w
	}
	return nil
}

func (r *Reconciler) explain(ctx context.Context, key client.ObjectKey) string {
	switch err := r.saveColour(ctx, key); {
	case err == nil:
		return "saved"
	case apierrors.IsConflict(err):
		return "conflict"
	default:
		return "other"
	}
}

// end
