package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: replica-count
func (r *Reconciler) repeatReplicas(ctx context.Context, key client.ObjectKey) error {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	var scale autoscalingv1.Scale
	if err := r.SubResource("scale").Get(ctx, web, &scale); err != nil {
		return fmt.Errorf("get the scale of web: %w", err)
	}
	// Computed once. The retry below gets a number through that belongs to an old read.
	wanted := scale.Spec.Replicas + 2
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var scale autoscalingv1.Scale
		if err := r.SubResource("scale").Get(ctx, web, &scale); err != nil {
			return err
		}
		scale.Spec.Replicas = wanted
		return r.SubResource("scale").Update(ctx, web, client.WithSubResourceBody(&scale))
	})
	if err != nil {
		return fmt.Errorf("scale web: %w", err)
	}
	return nil
}

// end

// right: replica-count
func (r *Reconciler) addReplicas(ctx context.Context, key client.ObjectKey) error {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var scale autoscalingv1.Scale
		if err := r.SubResource("scale").Get(ctx, web, &scale); err != nil {
			return err
		}
		// Computed from each fresh read.
		scale.Spec.Replicas += 2
		return r.SubResource("scale").Update(ctx, web, client.WithSubResourceBody(&scale))
	})
	if err != nil {
		return fmt.Errorf("scale web: %w", err)
	}
	return nil
}

// end
