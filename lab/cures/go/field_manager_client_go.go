package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// naive: field-manager
func applyBothFields(ctx context.Context, maps corev1client.ConfigMapInterface, namespace string) error {
	settings := corev1apply.ConfigMap("settings", namespace).
		WithData(map[string]string{"shade": "dark", "colour": "blue"})
	// The colour has another owner. No retry changes that: each attempt gets the same 409.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		_, err := maps.Apply(ctx, settings, metav1.ApplyOptions{FieldManager: "mine"})
		return err
	})
	if err != nil {
		return fmt.Errorf("apply settings: %w", err)
	}
	return nil
}

// end

// right: field-manager
func applyShade(ctx context.Context, maps corev1client.ConfigMapInterface, namespace string) error {
	// Apply only the fields that are yours to set.
	settings := corev1apply.ConfigMap("settings", namespace).
		WithData(map[string]string{"shade": "dark"})
	if _, err := maps.Apply(ctx, settings, metav1.ApplyOptions{FieldManager: "mine"}); err != nil {
		return fmt.Errorf("apply the shade of settings: %w", err)
	}
	return nil
}

// end
