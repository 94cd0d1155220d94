package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// naive: create-or-update
func (r *Reconciler) createOrUpdateOnce(ctx context.Context, key client.ObjectKey) error {
	fresh := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	// CreateOrUpdate reads, then creates or updates. It does not try again.
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, fresh, func() error {
		if fresh.Data == nil {
			fresh.Data = map[string]string{}
		}
		fresh.Data["colour"] = "blue"
		return nil
	})
	if err != nil {
		return fmt.Errorf("create or update fresh: %w", err)
	}
	return nil
}

// end

// right: create-or-update
func (r *Reconciler) createOrUpdate(ctx context.Context, key client.ObjectKey) error {
	wasFaster := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, wasFaster, func() error {
		// Each attempt starts with an empty object, so that nothing of the last attempt is left.
		fresh := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		_, err := controllerutil.CreateOrUpdate(ctx, r.Client, fresh, func() error {
			if fresh.Data == nil {
				fresh.Data = map[string]string{}
			}
			fresh.Data["colour"] = "blue"
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("create or update fresh: %w", err)
	}
	return nil
}

// end
