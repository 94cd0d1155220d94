// The ten jobs of conflict-retry's examples/jobs.rs with client-go alone, each as it is right: a conflict is retried from a
// fresh read, and an object that is as wanted is not sent. `cargo xtask check` counts the lines between the marks for the
// crate's README. Nothing calls these functions: what they do, the cures do beside a concurrent writer.

package main

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

const (
	jobName      = "jobs"
	jobFinalizer = "example.com/held"
)

// job: create an object, or change the one that is there
func jobEnsure(ctx context.Context, maps corev1client.ConfigMapInterface, initial *corev1.ConfigMap) error {
	wasFaster := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultRetry, wasFaster, func() error {
		found, err := maps.Get(ctx, jobName, metav1.GetOptions{})
		isMissing := apierrors.IsNotFound(err)
		if isMissing {
			found = initial.DeepCopy()
		} else if err != nil || found.Data["colour"] == "blue" {
			return err
		}
		if found.Data == nil {
			found.Data = map[string]string{}
		}
		found.Data["colour"] = "blue"
		if isMissing {
			_, err = maps.Create(ctx, found, metav1.CreateOptions{})
		} else {
			_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
		}
		return err
	})
}

// job: change an object
func jobChange(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := maps.Get(ctx, jobName, metav1.GetOptions{})
		if err != nil || found.Data["shade"] == "dark" {
			return err
		}
		if found.Data == nil {
			found.Data = map[string]string{}
		}
		found.Data["shade"] = "dark"
		_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
		return err
	})
}

// job: change an object of which a reconciler has a copy
func jobMark(ctx context.Context, maps corev1client.ConfigMapInterface, copied *corev1.ConfigMap) error {
	found := copied.DeepCopy()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var err error
		if found == nil {
			if found, err = maps.Get(ctx, jobName, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		changed := found
		found = nil
		if changed.Annotations["example.com/seen"] == "yes" {
			return nil
		}
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "example.com/seen", "yes")
		_, err = maps.Update(ctx, changed, metav1.UpdateOptions{})
		return err
	})
}

// job: change a status
func jobReport(ctx context.Context, deployments appsv1client.DeploymentInterface) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := deployments.Get(ctx, jobName, metav1.GetOptions{})
		if err != nil || ptr.Equal(found.Status.CollisionCount, ptr.To[int32](1)) {
			return err
		}
		found.Status.CollisionCount = ptr.To[int32](1)
		_, err = deployments.UpdateStatus(ctx, found, metav1.UpdateOptions{})
		return err
	})
}

// job: set a replica count that depends on the current one
func jobGrow(ctx context.Context, deployments appsv1client.DeploymentInterface) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := deployments.GetScale(ctx, jobName, metav1.GetOptions{})
		if err != nil || found.Spec.Replicas >= 3 {
			return err
		}
		found.Spec.Replicas = 3
		_, err = deployments.UpdateScale(ctx, jobName, found, metav1.UpdateOptions{})
		return err
	})
}

// job: own one condition
func jobOwn(ctx context.Context, deployments appsv1client.DeploymentInterface, body *appsv1apply.DeploymentApplyConfiguration) error {
	_, err := deployments.ApplyStatus(ctx, body, metav1.ApplyOptions{FieldManager: "jobs"})
	return err
}

// job: add a finalizer
func jobHold(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := maps.Get(ctx, jobName, metav1.GetOptions{})
		if err != nil || slices.Contains(found.Finalizers, jobFinalizer) {
			return err
		}
		found.Finalizers = append(found.Finalizers, jobFinalizer)
		_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
		return err
	})
}

// job: remove a finalizer
func jobRelease(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := maps.Get(ctx, jobName, metav1.GetOptions{})
		if err != nil || !slices.Contains(found.Finalizers, jobFinalizer) {
			return err
		}
		found.Finalizers = slices.DeleteFunc(found.Finalizers, func(one string) bool { return one == jobFinalizer })
		_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
		return err
	})
}

// job: remove a key
func jobForget(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	patch := []byte(`{"data":{"shade":null}}`)
	_, err := maps.Patch(ctx, jobName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// job: delete this object, and no other with its name
func jobDelete(ctx context.Context, maps corev1client.ConfigMapInterface, it *corev1.ConfigMap) error {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(it.UID))}
	err := maps.Delete(ctx, jobName, options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// end
