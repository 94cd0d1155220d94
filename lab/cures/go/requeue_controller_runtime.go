package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// SwallowingReconciler reports success when its write was refused.
type SwallowingReconciler struct{ client.Client }

// RequeueingReconciler returns the error of its write.
type RequeueingReconciler struct{ client.Client }

// The predicate belongs to the fault. Without it the event of the other client's write would start the reconcile again and
// hide that the error was swallowed.

// naive: requeue
var colourChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.ConfigMap), e.ObjectNew.(*corev1.ConfigMap)
	return before.Data["colour"] != after.Data["colour"]
}}

func (r *SwallowingReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &settings); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if settings.Data["colour"] == "blue" {
		return ctrl.Result{}, nil
	}
	settings.Data["colour"] = "blue"
	if err := r.Update(ctx, &settings); err != nil && !apierrors.IsConflict(err) {
		return ctrl.Result{}, fmt.Errorf("update settings: %w", err)
	}
	// After a conflict nothing was written, and the predicate drops the event of the other client's write.
	return ctrl.Result{}, nil
}

// end

// right: requeue
func (r *RequeueingReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &settings); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if settings.Data["colour"] == "blue" {
		return ctrl.Result{}, nil
	}
	settings.Data["colour"] = "blue"
	// An error brings the request back after a pause that grows. By then the cache is newer.
	if err := r.Update(ctx, &settings); err != nil {
		return ctrl.Result{}, fmt.Errorf("update settings: %w", err)
	}
	return ctrl.Result{}, nil
}

// end

func (r *SwallowingReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}, builder.WithPredicates(colourChanged)).Complete(r)
}

func (r *RequeueingReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}, builder.WithPredicates(colourChanged)).Complete(r)
}
