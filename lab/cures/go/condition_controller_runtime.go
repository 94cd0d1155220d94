package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// naive: condition
func (r *Reconciler) patchConditions(ctx context.Context, key client.ObjectKey) error {
	var web appsv1.Deployment
	if err := r.Get(ctx, key, &web); err != nil {
		return fmt.Errorf("get web: %w", err)
	}
	before := web.DeepCopy()
	seen := appsv1.DeploymentCondition{Type: "Seen", Status: corev1.ConditionTrue}
	web.Status.Conditions = append(web.Status.Conditions, seen)
	// A merge patch replaces the whole list. An entry that was added since the read is lost.
	if err := r.Status().Patch(ctx, &web, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch the conditions of web: %w", err)
	}
	return nil
}

// end

// right: condition
func (r *Reconciler) applyCondition(ctx context.Context, key client.ObjectKey) error {
	// The list is a map by type: to apply one entry leaves the others alone.
	web := appsv1apply.Deployment(key.Name, key.Namespace).
		WithStatus(appsv1apply.DeploymentStatus().
			WithConditions(appsv1apply.DeploymentCondition().
				WithType("Seen").
				WithStatus(corev1.ConditionTrue)))
	if err := r.Status().Apply(ctx, web, client.FieldOwner("seen-controller")); err != nil {
		return fmt.Errorf("apply the condition Seen of web: %w", err)
	}
	return nil
}

// end
