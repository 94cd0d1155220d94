package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TwoWritesReconciler writes twice in each reconcile.
type TwoWritesReconciler struct{ client.Client }

// OneWriteReconciler writes only when something is to be changed.
type OneWriteReconciler struct{ client.Client }

// naive: one-write
func (r *TwoWritesReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &settings); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	settings.Data["colour"] = "blue"
	if err := r.Update(ctx, &settings); err != nil {
		return ctrl.Result{}, fmt.Errorf("update settings: %w", err)
	}
	// Each write is a change, each change is an event, and each event starts this function again.
	settings.Data["colour"] = "red"
	if err := r.Update(ctx, &settings); err != nil {
		return ctrl.Result{}, fmt.Errorf("update settings: %w", err)
	}
	return ctrl.Result{}, nil
}

// end

// right: one-write
func (r *OneWriteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var settings corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &settings); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// The event of the controller's own write ends here.
	if settings.Data["colour"] == "blue" {
		return ctrl.Result{}, nil
	}
	settings.Data["colour"] = "blue"
	if err := r.Update(ctx, &settings); err != nil {
		return ctrl.Result{}, fmt.Errorf("update settings: %w", err)
	}
	return ctrl.Result{}, nil
}

// end

func (r *TwoWritesReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(r)
}

func (r *OneWriteReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(r)
}
