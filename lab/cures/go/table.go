package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"
)

const (
	clientGo          = "client-go"
	controllerRuntime = "controller-runtime"
	naive             = "naive"
	right             = "right"

	// How many names `watch` prints.
	watchedNames = 3
)

// Reconciler has the shape that operators give theirs. Its client reads from the API server, not from a cache.
type Reconciler struct{ client.Client }

type target struct {
	config    *rest.Config
	namespace string
}

type cure struct {
	library, id, variant string
	run                  func(context.Context, target) error
}

var cures = []cure{
	{clientGo, "change-a-field", naive, maps(setColourOnce)},
	{clientGo, "change-a-field", right, maps(setColour)},
	{clientGo, "write-only-your-field", naive, maps(forceColour)},
	{clientGo, "write-only-your-field", right, maps(patchColour)},
	{clientGo, "status", naive, deployments(setCollisionCountInMainResource)},
	{clientGo, "status", right, deployments(setCollisionCount)},
	{clientGo, "condition", naive, deployments(patchConditions)},
	{clientGo, "condition", right, deploymentsIn(applyCondition)},
	{clientGo, "field-manager", naive, mapsIn(applyBothFields)},
	{clientGo, "field-manager", right, mapsIn(applyShade)},
	{clientGo, "replica-count", naive, deployments(repeatReplicas)},
	{clientGo, "replica-count", right, deployments(addReplicas)},
	{clientGo, "finalizer", naive, maps(patchFinalizers)},
	{clientGo, "finalizer", right, maps(addFinalizer)},
	{clientGo, "create-or-update", naive, maps(createOrUpdateOnce)},
	{clientGo, "create-or-update", right, maps(createOrUpdate)},
	{clientGo, "delete-this-one", naive, maps(deleteByName)},
	{clientGo, "delete-this-one", right, maps(deleteThisOne)},
	{clientGo, "watch", naive, maps(fromVersion(watchAddedUnchecked))},
	{clientGo, "watch", right, maps(fromVersion(watchAdded))},
	{clientGo, "error-type", naive, maps(printed(explainText))},
	{clientGo, "error-type", right, maps(printed(explain))},
	{clientGo, "back-off", naive, maps(setColourFiveTimes)},
	{clientGo, "back-off", right, maps(setColourPatiently)},
	{clientGo, "rate-limiter", naive, slowMaps(setColourSlowly)},
	{clientGo, "rate-limiter", right, maps(atPace(setColourAtPace))},
	{clientGo, "circuit-breaker", naive, maps(behindBreaker(&breaker{}, setColourUnlessOpen))},
	{clientGo, "circuit-breaker", right, maps(behindBreaker(newBreaker(), setColourUnlessDown))},

	{controllerRuntime, "change-a-field", naive, reconciler("settings", (*Reconciler).setColourOnce)},
	{controllerRuntime, "change-a-field", right, reconciler("settings", (*Reconciler).setColour)},
	{controllerRuntime, "write-only-your-field", naive, reconciler("settings", (*Reconciler).forceColour)},
	{controllerRuntime, "write-only-your-field", right, reconciler("settings", (*Reconciler).patchColour)},
	{controllerRuntime, "status", naive, reconciler("web", (*Reconciler).setCollisionCountInMainResource)},
	{controllerRuntime, "status", right, reconciler("web", (*Reconciler).setCollisionCount)},
	{controllerRuntime, "condition", naive, reconciler("web", (*Reconciler).patchConditions)},
	{controllerRuntime, "condition", right, reconciler("web", (*Reconciler).applyCondition)},
	{controllerRuntime, "field-manager", naive, reconciler("settings", (*Reconciler).applyBothFields)},
	{controllerRuntime, "field-manager", right, reconciler("settings", (*Reconciler).applyShade)},
	{controllerRuntime, "replica-count", naive, reconciler("web", (*Reconciler).repeatReplicas)},
	{controllerRuntime, "replica-count", right, reconciler("web", (*Reconciler).addReplicas)},
	{controllerRuntime, "finalizer", naive, reconciler("settings", (*Reconciler).patchFinalizers)},
	{controllerRuntime, "finalizer", right, reconciler("settings", (*Reconciler).addFinalizer)},
	{controllerRuntime, "create-or-update", naive, reconciler("fresh", (*Reconciler).createOrUpdateOnce)},
	{controllerRuntime, "create-or-update", right, reconciler("fresh", (*Reconciler).createOrUpdate)},
	{controllerRuntime, "delete-this-one", naive, reconciler("settings", (*Reconciler).deleteByName)},
	{controllerRuntime, "delete-this-one", right, reconciler("settings", (*Reconciler).deleteThisOne)},
	{controllerRuntime, "error-type", naive, reconciler("settings", printedByReconciler((*Reconciler).explainText))},
	{controllerRuntime, "error-type", right, reconciler("settings", printedByReconciler((*Reconciler).explain))},
	{controllerRuntime, "back-off", naive, reconciler("settings", (*Reconciler).setColourByDefault)},
	{controllerRuntime, "back-off", right, reconciler("settings", (*Reconciler).setColourPatiently)},
	{controllerRuntime, "rate-limiter", naive, slowReconciler("settings", (*Reconciler).setColourSlowly)},
	{controllerRuntime, "rate-limiter", right, reconciler("settings", pacedReconciler((*PacedReconciler).setColour))},
	{controllerRuntime, "circuit-breaker", naive, reconciler("settings", guardedReconciler(newDefaultBreaker(), (*GuardedReconciler).setColourUnlessOpen))},
	{controllerRuntime, "circuit-breaker", right, reconciler("settings", guardedReconciler(newFaultBreaker(), (*GuardedReconciler).setColourUnlessDown))},
	{controllerRuntime, "one-write", naive, controller(func(m ctrl.Manager) error { return (&TwoWritesReconciler{m.GetClient()}).setup(m) })},
	{controllerRuntime, "one-write", right, controller(func(m ctrl.Manager) error { return (&OneWriteReconciler{m.GetClient()}).setup(m) })},
	{controllerRuntime, "requeue", naive, controller(func(m ctrl.Manager) error { return (&SwallowingReconciler{m.GetClient()}).setup(m) })},
	{controllerRuntime, "requeue", right, controller(func(m ctrl.Manager) error { return (&RequeueingReconciler{m.GetClient()}).setup(m) })},
}

func maps(f func(context.Context, corev1client.ConfigMapInterface) error) func(context.Context, target) error {
	return mapsIn(func(ctx context.Context, maps corev1client.ConfigMapInterface, _ string) error { return f(ctx, maps) })
}

func mapsIn(f func(context.Context, corev1client.ConfigMapInterface, string) error) func(context.Context, target) error {
	return func(ctx context.Context, t target) error {
		clients, err := kubernetes.NewForConfig(t.config)
		if err != nil {
			return fmt.Errorf("make a client: %w", err)
		}
		return f(ctx, clients.CoreV1().ConfigMaps(t.namespace), t.namespace)
	}
}

// slowMaps hands out a client that is slowed down on the client's side.
func slowMaps(f func(context.Context, corev1client.ConfigMapInterface) error) func(context.Context, target) error {
	return func(ctx context.Context, t target) error {
		clients, err := newSlowClients(t.config)
		if err != nil {
			return fmt.Errorf("make a client: %w", err)
		}
		return threeTimes(func() error { return f(ctx, clients.CoreV1().ConfigMaps(t.namespace)) })
	}
}

func atPace(f func(context.Context, corev1client.ConfigMapInterface, *rate.Limiter) error) func(context.Context, corev1client.ConfigMapInterface) error {
	return func(ctx context.Context, maps corev1client.ConfigMapInterface) error {
		pace := newPace()
		return threeTimes(func() error { return f(ctx, maps, pace) })
	}
}

// threeTimes calls f so often that a limiter has something to pace.
func threeTimes(f func() error) error {
	for range 3 {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func behindBreaker[B any](breaker B, f func(context.Context, corev1client.ConfigMapInterface, string, B) error) func(context.Context, corev1client.ConfigMapInterface) error {
	return func(ctx context.Context, maps corev1client.ConfigMapInterface) error {
		return eachObject(func(name string) error { return f(ctx, maps, name, breaker) })
	}
}

// eachObject calls f for a contested object, for one that has no other writer, and then ten times for one about which the
// proxy answers that the server is down.
func eachObject(f func(name string) error) error {
	contested, quiet := f("settings"), f("quiet")
	for range 10 {
		_ = f("down") // it is to fail; the proxy counts how often it is asked
	}
	return errors.Join(contested, quiet)
}

func deployments(f func(context.Context, appsv1client.DeploymentInterface) error) func(context.Context, target) error {
	return deploymentsIn(func(ctx context.Context, d appsv1client.DeploymentInterface, _ string) error { return f(ctx, d) })
}

func deploymentsIn(f func(context.Context, appsv1client.DeploymentInterface, string) error) func(context.Context, target) error {
	return func(ctx context.Context, t target) error {
		clients, err := kubernetes.NewForConfig(t.config)
		if err != nil {
			return fmt.Errorf("make a client: %w", err)
		}
		return f(ctx, clients.AppsV1().Deployments(t.namespace), t.namespace)
	}
}

func fromVersion(f func(context.Context, corev1client.ConfigMapInterface, string, func(corev1.ConfigMap) bool) error) func(context.Context, corev1client.ConfigMapInterface) error {
	return func(ctx context.Context, maps corev1client.ConfigMapInterface) error {
		version := os.Getenv("FROM")
		if version == "" {
			return errors.New("FROM is not set")
		}
		return f(ctx, maps, version, printEachOnce(watchedNames))
	}
}

func printed(f func(context.Context, corev1client.ConfigMapInterface) string) func(context.Context, corev1client.ConfigMapInterface) error {
	return func(ctx context.Context, maps corev1client.ConfigMapInterface) error {
		fmt.Println(f(ctx, maps))
		return nil
	}
}

func printedByReconciler(f func(*Reconciler, context.Context, client.ObjectKey) string) func(*Reconciler, context.Context, client.ObjectKey) error {
	return func(r *Reconciler, ctx context.Context, key client.ObjectKey) error {
		fmt.Println(f(r, ctx, key))
		return nil
	}
}

func reconciler(name string, f func(*Reconciler, context.Context, client.ObjectKey) error) func(context.Context, target) error {
	return func(ctx context.Context, t target) error {
		direct, err := client.New(t.config, client.Options{})
		if err != nil {
			return fmt.Errorf("make a client: %w", err)
		}
		return f(&Reconciler{direct}, ctx, client.ObjectKey{Namespace: t.namespace, Name: name})
	}
}

// slowReconciler has a client that is slowed down on the client's side.
func slowReconciler(name string, f func(*Reconciler, context.Context, client.ObjectKey) error) func(context.Context, target) error {
	return func(ctx context.Context, t target) error {
		slow, err := newSlowClient(t.config)
		if err != nil {
			return fmt.Errorf("make a client: %w", err)
		}
		key := client.ObjectKey{Namespace: t.namespace, Name: name}
		return threeTimes(func() error { return f(&Reconciler{slow}, ctx, key) })
	}
}

func pacedReconciler(f func(*PacedReconciler, context.Context, client.ObjectKey) error) func(*Reconciler, context.Context, client.ObjectKey) error {
	return func(r *Reconciler, ctx context.Context, key client.ObjectKey) error {
		paced := &PacedReconciler{r.Client, rate.NewLimiter(2, 1)}
		return threeTimes(func() error { return f(paced, ctx, key) })
	}
}

func guardedReconciler(breaker *gobreaker.CircuitBreaker[any], f func(*GuardedReconciler, context.Context, client.ObjectKey) error) func(*Reconciler, context.Context, client.ObjectKey) error {
	return func(r *Reconciler, ctx context.Context, key client.ObjectKey) error {
		guarded := &GuardedReconciler{r.Client, breaker}
		return eachObject(func(name string) error {
			return f(guarded, ctx, client.ObjectKey{Namespace: key.Namespace, Name: name})
		})
	}
}

// controller runs a manager whose cache holds the ConfigMap settings and nothing else.
func controller(setup func(ctrl.Manager) error) func(context.Context, target) error {
	return func(ctx context.Context, t target) error {
		mgr, err := ctrl.NewManager(t.config, ctrl.Options{
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0",
			LeaderElection:         false,
			Cache: cache.Options{
				DefaultNamespaces: map[string]cache.Config{t.namespace: {}},
				ByObject: map[client.Object]cache.ByObject{
					&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector("metadata.name", "settings")},
				},
			},
		})
		if err != nil {
			return fmt.Errorf("make a manager: %w", err)
		}
		if err := setup(mgr); err != nil {
			return fmt.Errorf("set the controller up: %w", err)
		}
		// Who starts it ends it.
		if err := mgr.Start(ctx); err != nil {
			return fmt.Errorf("run the manager: %w", err)
		}
		return nil
	}
}
