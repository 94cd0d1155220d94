package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// naive: write-only-your-field
func forceColour(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	settings.Data["colour"] = "blue"
	// Without a version the server cannot see a conflict. Every other field goes back to the copy.
	settings.ResourceVersion = ""
	if _, err := maps.Update(ctx, settings, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update settings: %w", err)
	}
	return nil
}

// end

// right: write-only-your-field
func patchColour(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	patch := []byte(`{"data":{"colour":"blue"}}`)
	if _, err := maps.Patch(ctx, "settings", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch the colour of settings: %w", err)
	}
	return nil
}

// end
