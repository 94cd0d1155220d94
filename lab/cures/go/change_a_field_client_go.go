package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// naive: change-a-field
func setColourOnce(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	settings.Data["colour"] = "blue"
	// A conflict is expected sooner or later. Here it fails the whole task.
	if _, err := maps.Update(ctx, settings, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update settings: %w", err)
	}
	return nil
}

// end

// right: change-a-field
func setColour(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		// Each attempt reads again, so that it changes what is there now.
		settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		settings.Data["colour"] = "blue"
		_, err = maps.Update(ctx, settings, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("set the colour of settings: %w", err)
	}
	return nil
}

// end
