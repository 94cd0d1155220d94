package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// naive: delete-this-one
func deleteByName(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	// The name may belong to another object by now.
	if err := maps.Delete(ctx, settings.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete settings: %w", err)
	}
	return nil
}

// end

// right: delete-this-one
func deleteThisOne(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	settings, err := maps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get settings: %w", err)
	}
	// The UID names this one object, the version names the state that was read.
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID:             &settings.UID,
		ResourceVersion: &settings.ResourceVersion,
	}}
	if err := maps.Delete(ctx, settings.Name, options); err != nil {
		return fmt.Errorf("delete the settings that were read: %w", err)
	}
	return nil
}

// end
