package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// naive: watch
func watchAddedUnchecked(ctx context.Context, maps corev1client.ConfigMapInterface, version string,
	found func(corev1.ConfigMap) (done bool)) error {
	events, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return fmt.Errorf("watch ConfigMaps: %w", err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		// An ERROR event holds a Status, not a ConfigMap: this line panics.
		object := event.Object.(*corev1.ConfigMap)
		if event.Type == watch.Added && found(*object) {
			return nil
		}
	}
	return errors.New("the watch of ConfigMaps has ended")
}

// end

// RetryWatcher is not used: it ends at an ERROR event with 410, so the list is needed all the same, and when the request
// itself is answered with 410 it sends the same old version for ever.

// right: watch
func watchAdded(ctx context.Context, maps corev1client.ConfigMapInterface, version string,
	found func(corev1.ConfigMap) (done bool)) error {
	for {
		events, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return fmt.Errorf("watch ConfigMaps: %w", err)
		}
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				break // most often 410: the version is too old
			}
			if event.Type == watch.Added && found(*event.Object.(*corev1.ConfigMap)) {
				events.Stop()
				return nil
			}
		}
		events.Stop()
		// List again and go on from there. `found` may see an object a second time.
		list, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list ConfigMaps: %w", err)
		}
		if slices.ContainsFunc(list.Items, found) {
			return nil
		}
		version = list.ResourceVersion
	}
}

// end

// printEachOnce prints the name of each object it has not seen before, and is done after `count` names.
func printEachOnce(count int) func(corev1.ConfigMap) bool {
	seen := sets.New[types.UID]()
	return func(object corev1.ConfigMap) bool {
		if !seen.Has(object.UID) {
			fmt.Println(object.Name)
		}
		return seen.Insert(object.UID).Len() == count
	}
}
