package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// naive: status
func setCollisionCountInMainResource(ctx context.Context, deployments appsv1client.DeploymentInterface) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		web, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		web.Status.CollisionCount = ptr.To[int32](1)
		// The main resource drops the change of the status and reports success.
		_, err = deployments.Update(ctx, web, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("update the status of web: %w", err)
	}
	return nil
}

// end

// right: status
func setCollisionCount(ctx context.Context, deployments appsv1client.DeploymentInterface) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		web, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		web.Status.CollisionCount = ptr.To[int32](1)
		_, err = deployments.UpdateStatus(ctx, web, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("update the status of web: %w", err)
	}
	return nil
}

// end
