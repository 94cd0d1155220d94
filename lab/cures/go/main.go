// Command cures runs one way to write to a Kubernetes object: the naive one, or the right one. The functions between the
// marks `// naive: ID` or `// right: ID` and `// end` are what a reader copies.
//
// It must not play the rival and must not judge the result: the proxy and the driver in the crate `lab` do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/go-logr/logr"
)

const usage = "usage: cures LIBRARY ID naive|right, or cures list"

// The time after which a program that waits for something gives up.
const timeLimit = 5 * time.Minute

func main() {
	ctrl.SetLogger(logr.Discard())
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if slices.Equal(args, []string{"list"}) {
		for _, cure := range cures {
			fmt.Println(cure.library, cure.id, cure.variant)
		}
		return nil
	}
	if len(args) != 3 {
		return errors.New(usage)
	}
	cure, err := find(args[0], args[1], args[2])
	if err != nil {
		return err
	}
	target, err := targetFromEnvironment()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	return cure.run(ctx, target)
}

func find(library, id, variant string) (cure, error) {
	known := ""
	for _, cure := range cures {
		if cure.library == library && cure.id == id && cure.variant == variant {
			return cure, nil
		}
		known += fmt.Sprintf("\n  %s %s %s", cure.library, cure.id, cure.variant)
	}
	return cure{}, fmt.Errorf("unknown: %s %s %s; known are:%s", library, id, variant, known)
}

func targetFromEnvironment() (target, error) {
	namespace := os.Getenv("NAMESPACE")
	if namespace == "" {
		return target{}, errors.New("NAMESPACE is not set")
	}
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return target{}, errors.New("KUBECONFIG is not set")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return target{}, fmt.Errorf("read the kubeconfig %s: %w", path, err)
	}
	// The server takes the field manager of an update or a patch from the user agent.
	config.UserAgent = "cures"
	// The proxy and its log are for people to read: no protobuf.
	config.ContentType = "application/json"
	config.AcceptContentTypes = "application/json"
	// No limit on the client's side: what is seen is the effect of the program's own pauses.
	config.QPS = -1
	return target{config: config, namespace: namespace}, nil
}
