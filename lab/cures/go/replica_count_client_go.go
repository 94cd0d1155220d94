package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/util/retry"
)

// naive: replica-count
func repeatReplicas(ctx context.Context, deployments appsv1client.DeploymentInterface) error {
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the scale of web: %w", err)
	}
	// Computed once. The retry below gets a number through that belongs to an old read.
	wanted := scale.Spec.Replicas + 2
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas = wanted
		_, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("scale web: %w", err)
	}
	return nil
}

// end

// right: replica-count
func addReplicas(ctx context.Context, deployments appsv1client.DeploymentInterface) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		// Computed from each fresh read.
		scale.Spec.Replicas += 2
		_, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("scale web: %w", err)
	}
	return nil
}

// end
