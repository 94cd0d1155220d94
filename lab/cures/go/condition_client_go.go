package main

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
)

// naive: condition
func patchConditions(ctx context.Context, deployments appsv1client.DeploymentInterface) error {
	web, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get web: %w", err)
	}
	// A merge patch replaces the whole list. An entry that was added since the read is lost.
	conditions := append(web.Status.Conditions, appsv1.DeploymentCondition{Type: "Seen", Status: corev1.ConditionTrue})
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return fmt.Errorf("encode the patch of web: %w", err)
	}
	_, err = deployments.Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch the conditions of web: %w", err)
	}
	return nil
}

// end

// right: condition
func applyCondition(ctx context.Context, deployments appsv1client.DeploymentInterface, namespace string) error {
	// The list is a map by type: to apply one entry leaves the others alone.
	web := appsv1apply.Deployment("web", namespace).
		WithStatus(appsv1apply.DeploymentStatus().
			WithConditions(appsv1apply.DeploymentCondition().
				WithType("Seen").
				WithStatus(corev1.ConditionTrue)))
	if _, err := deployments.ApplyStatus(ctx, web, metav1.ApplyOptions{FieldManager: "seen-controller"}); err != nil {
		return fmt.Errorf("apply the condition Seen of web: %w", err)
	}
	return nil
}

// end
