package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// naive: finalizer
func patchFinalizers(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	// A merge patch replaces the whole list. A finalizer that was added since the read is lost.
	finalizers := append(settings.Finalizers, "example.com/mine")
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err != nil {
		return fmt.Errorf("encode the patch of settings: %w", err)
	}
	if _, err := maps.Patch(ctx, "settings", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch the finalizers of settings: %w", err)
	}
	return nil
}

// end

// right: finalizer
func addFinalizer(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if slices.Contains(settings.Finalizers, "example.com/mine") {
			return nil
		}
		settings.Finalizers = append(settings.Finalizers, "example.com/mine")
		// The update carries the version that was read: a list from an old copy is refused.
		_, err = maps.Update(ctx, settings, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("add a finalizer to settings: %w", err)
	}
	return nil
}

// end
