package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sony/gobreaker/v2"
)

// naive: circuit-breaker
func newDefaultBreaker() *gobreaker.CircuitBreaker[any] {
	// By default every error counts: a conflict, too, which is the answer of a healthy server. Six in a row open it.
	return gobreaker.NewCircuitBreaker[any](gobreaker.Settings{Name: "api-server"})
}

func (r *GuardedReconciler) setColourUnlessOpen(ctx context.Context, key client.ObjectKey) error {
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1, Jitter: 0.5, Steps: 10}
	err := retry.RetryOnConflict(backoff, func() error {
		_, err := r.breaker.Execute(func() (any, error) {
			var object corev1.ConfigMap
			if err := r.Get(ctx, key, &object); err != nil {
				return nil, err
			}
			object.Data["colour"] = "blue"
			return nil, r.Update(ctx, &object)
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("set the colour of %s: %w", key.Name, err)
	}
	return nil
}

// end

// right: circuit-breaker
// GuardedReconciler sends no request while its breaker is open.
type GuardedReconciler struct {
	client.Client
	breaker *gobreaker.CircuitBreaker[any]
}

func newFaultBreaker() *gobreaker.CircuitBreaker[any] {
	return gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name:         "api-server",
		ReadyToTrip:  func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= 5 },
		IsSuccessful: func(err error) bool { return !isServerFault(err) },
		// After a minute one request is let through, the probe, and its answer decides.
		Timeout: time.Minute, MaxRequests: 1,
	})
}

// isServerFault says whether the server did not answer, or answered that it cannot. A conflict is neither.
func isServerFault(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	// A webhook that cannot be called is no reason to stop the writes that need none.
	isWebhook := strings.Contains(answer.Status().Message, "failed calling webhook")
	return answer.Status().Code >= 500 && !isWebhook
}

func (r *GuardedReconciler) setColourUnlessDown(ctx context.Context, key client.ObjectKey) error {
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1, Jitter: 0.5, Steps: 10}
	err := retry.RetryOnConflict(backoff, func() error {
		_, err := r.breaker.Execute(func() (any, error) {
			var object corev1.ConfigMap
			if err := r.Get(ctx, key, &object); err != nil {
				return nil, err
			}
			object.Data["colour"] = "blue"
			return nil, r.Update(ctx, &object)
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("set the colour of %s: %w", key.Name, err)
	}
	return nil
}

// end
