package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// naive: error-type
func saveColourAsText(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get settings: %v", err)
	}
	settings.Data["colour"] = "blue"
	if _, err := maps.Update(ctx, settings, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update settings: %v", err) // %v keeps the text and loses the type
	}
	return nil
}

func explainText(ctx context.Context, maps corev1client.ConfigMapInterface) string {
	switch err := saveColourAsText(ctx, maps); {
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
func saveColour(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	settings.Data["colour"] = "blue"
	if _, err := maps.Update(ctx, settings, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update settings: %w", err) // IsConflict looks through %w
	}
	return nil
}

func explain(ctx context.Context, maps corev1client.ConfigMapInterface) string {
	switch err := saveColour(ctx, maps); {
	case err == nil:
		return "saved"
	case apierrors.IsConflict(err):
		return "conflict"
	default:
		return "other"
	}
}

// end
