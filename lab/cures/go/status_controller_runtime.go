package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: status
func (r *Reconciler) setCollisionCountInMainResource(ctx context.Context, key client.ObjectKey) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var web appsv1.Deployment
		if err := r.Get(ctx, key, &web); err != nil {
			return err
		}
		web.Status.CollisionCount = ptr.To[int32](1)
		// The main resource drops the change of the status and reports success.
		return r.Update(ctx, &web)
	})
	if err != nil {
		return fmt.Errorf("update the status of web: %w", err)
	}
	return nil
}

// end

// right: status
func (r *Reconciler) setCollisionCount(ctx context.Context, key client.ObjectKey) error {
	var web appsv1.Deployment
	if err := r.Get(ctx, key, &web); err != nil {
		return fmt.Errorf("get web: %w", err)
	}
	before := web.DeepCopy()
	web.Status.CollisionCount = ptr.To[int32](1)
	// The patch holds this one field. It cannot conflict, whatever else has changed.
	if err := r.Status().Patch(ctx, &web, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch the status of web: %w", err)
	}
	return nil
}

// end
