package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"github.com/sony/gobreaker/v2"
)

// naive: circuit-breaker
// breaker is the one of many tutorials. It also lacks a mutex, and lets every caller through when its time is over.
type breaker struct {
	failures int
	opened   time.Time
}

var errOpen = errors.New("circuit breaker is open")

func (b *breaker) execute(request func() error) error {
	if b.failures >= 5 && time.Since(b.opened) < time.Minute {
		return errOpen
	}
	err := request()
	if err == nil {
		b.failures = 0
		return nil
	}
	// Every error counts: a conflict, too, which is the answer of a healthy server.
	b.failures++
	b.opened = time.Now()
	return err
}

func setColourUnlessOpen(ctx context.Context, maps corev1client.ConfigMapInterface, name string, b *breaker) error {
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1, Jitter: 0.5, Steps: 10}
	err := retry.RetryOnConflict(backoff, func() error {
		return b.execute(func() error {
			object, err := maps.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			object.Data["colour"] = "blue"
			_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("set the colour of %s: %w", name, err)
	}
	return nil
}

// end

// right: circuit-breaker
func newBreaker() *gobreaker.CircuitBreaker[*corev1.ConfigMap] {
	return gobreaker.NewCircuitBreaker[*corev1.ConfigMap](gobreaker.Settings{
		Name:         "api-server",
		ReadyToTrip:  func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= 5 },
		IsSuccessful: func(err error) bool { return !isFault(err) },
		// After a minute one request is let through, the probe, and its answer decides.
		Timeout: time.Minute, MaxRequests: 1,
	})
}

// isFault says whether the server did not answer, or answered that it cannot. A conflict is neither.
func isFault(err error) bool {
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

func setColourUnlessDown(ctx context.Context, maps corev1client.ConfigMapInterface, name string,
	b *gobreaker.CircuitBreaker[*corev1.ConfigMap]) error {
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1, Jitter: 0.5, Steps: 10}
	err := retry.RetryOnConflict(backoff, func() error {
		_, err := b.Execute(func() (*corev1.ConfigMap, error) {
			object, err := maps.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			object.Data["colour"] = "blue"
			return maps.Update(ctx, object, metav1.UpdateOptions{})
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("set the colour of %s: %w", name, err)
	}
	return nil
}

// end
