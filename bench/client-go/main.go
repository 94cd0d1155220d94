// Command client-go-writers is the other side of `cargo xtask bench conflict`: independent writers that increment one
// field of one object with client-go's RetryOnConflict, exactly as its documentation shows it.
//
// It reads one session per line from standard input (JSON) and answers each with one line on standard output. The
// writers, with their connections, live as long as the process.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
)

// session is what to do: every writer increments once per entry of its starts, in order, the whole repeat times.
type session struct {
	Policy string `json:"policy"`
	Object string `json:"object"`
	// One list per writer: milliseconds after the common start.
	Starts [][]float64 `json:"starts"`
	Repeat int         `json:"repeat"`
	// Rest between repetitions.
	GapMs float64 `json:"gapMs"`
}

// report is what came of it.
type report struct {
	LatenciesMs []float64 `json:"latenciesMs"`
	Requests    int64     `json:"requests"`
	GiveUps     int64     `json:"giveUps"`
	WallSeconds float64   `json:"wallSeconds"`
	Error       string    `json:"error,omitempty"`
}

// writer has a connection of its own; client-go would share one among clients of equal configuration.
type writer struct {
	counters dynamic.ResourceInterface
	requests *atomic.Int64
}

type counting struct {
	next     http.RoundTripper
	requests *atomic.Int64
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.next.RoundTrip(request)
}

func newWriter(config *rest.Config, namespace string, resource schema.GroupVersionResource) (*writer, error) {
	own := rest.CopyConfig(config)
	// No client-side rate limit: it would pace the writers instead of their policy.
	own.QPS = -1
	// A dialer of its own keeps the transport out of client-go's cache of shared transports.
	own.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	requests := &atomic.Int64{}
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, requests} })
	client, err := dynamic.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	return &writer{client.Resource(resource).Namespace(namespace), requests}, nil
}

func (w *writer) increment(ctx context.Context, object string, backoff wait.Backoff) error {
	return retry.RetryOnConflict(backoff, func() error {
		counter, err := w.counters.Get(ctx, object, metav1.GetOptions{})
		if err != nil {
			return err
		}
		value, found, err := unstructured.NestedInt64(counter.Object, "spec", "value")
		if err != nil || !found {
			return errors.Join(errors.New("the counter has no value"), err)
		}
		if err := unstructured.SetNestedField(counter.Object, value+1, "spec", "value"); err != nil {
			return err
		}
		_, err = w.counters.Update(ctx, counter, metav1.UpdateOptions{})
		return err
	})
}

func run(ctx context.Context, writers []*writer, do session) (report, error) {
	var backoff wait.Backoff
	switch do.Policy {
	case "DefaultRetry":
		backoff = retry.DefaultRetry
	case "DefaultBackoff":
		backoff = retry.DefaultBackoff
	default:
		return report{}, fmt.Errorf("unknown policy %q", do.Policy)
	}
	// Connections are opened before anything is measured.
	for _, w := range writers {
		if _, err := w.counters.Get(ctx, do.Object, metav1.GetOptions{}); err != nil {
			return report{}, err
		}
		w.requests.Store(0)
	}
	var giveUps atomic.Int64
	var wall time.Duration
	latencies := make([][]float64, len(writers))
	failures := make([]error, len(writers))
	for range do.Repeat {
		time.Sleep(time.Duration(do.GapMs * float64(time.Millisecond)))
		var done sync.WaitGroup
		began := time.Now()
		for i, w := range writers {
			done.Go(func() {
				for _, start := range do.Starts[i] {
					due := began.Add(time.Duration(start * float64(time.Millisecond)))
					time.Sleep(time.Until(due))
					for {
						err := w.increment(ctx, do.Object, backoff)
						if err == nil {
							break
						}
						if !apierrors.IsConflict(err) {
							failures[i] = err
							return
						}
						giveUps.Add(1)
					}
					latencies[i] = append(latencies[i], float64(time.Since(due))/float64(time.Millisecond))
				}
			})
		}
		done.Wait()
		wall += time.Since(began)
		if err := errors.Join(failures...); err != nil {
			return report{}, err
		}
	}
	answer := report{GiveUps: giveUps.Load(), WallSeconds: wall.Seconds()}
	for i, w := range writers {
		answer.Requests += w.requests.Load()
		answer.LatenciesMs = append(answer.LatenciesMs, latencies[i]...)
	}
	return answer, nil
}

func serve() error {
	kubeconfig := flag.String("kubeconfig", "", "the cluster to write to")
	namespace := flag.String("namespace", "", "where the object is")
	group := flag.String("group", "", "the object's API group")
	version := flag.String("version", "", "its version")
	resource := flag.String("resource", "", "its resource")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	of := schema.GroupVersionResource{Group: *group, Version: *version, Resource: *resource}
	var writers []*writer
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var do session
		if err := json.Unmarshal(lines.Bytes(), &do); err != nil {
			return err
		}
		for len(writers) < len(do.Starts) {
			one, err := newWriter(config, *namespace, of)
			if err != nil {
				return err
			}
			writers = append(writers, one)
		}
		answer, err := run(context.Background(), writers[:len(do.Starts)], do)
		if err != nil {
			answer.Error = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
