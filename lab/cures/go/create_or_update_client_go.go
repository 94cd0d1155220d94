package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// naive: create-or-update
func createOrUpdateOnce(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	fresh, err := maps.Get(ctx, "fresh", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}, Data: map[string]string{"colour": "blue"}}
		// Another client may have created it since the read.
		if _, err := maps.Create(ctx, fresh, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create fresh: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("get fresh: %w", err)
	}
	fresh.Data["colour"] = "blue"
	if _, err := maps.Update(ctx, fresh, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update fresh: %w", err)
	}
	return nil
}

// end

// right: create-or-update
func createOrUpdate(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	wasFaster := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, wasFaster, func() error {
		fresh, err := maps.Get(ctx, "fresh", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			fresh = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}, Data: map[string]string{"colour": "blue"}}
			_, err = maps.Create(ctx, fresh, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if fresh.Data == nil {
			fresh.Data = map[string]string{}
		}
		fresh.Data["colour"] = "blue"
		_, err = maps.Update(ctx, fresh, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create or update fresh: %w", err)
	}
	return nil
}

// end
