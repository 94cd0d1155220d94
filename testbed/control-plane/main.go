// Command control-plane is a real Kubernetes control plane in one binary: etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager, each the unmodified upstream program, chosen by the name the binary was called by or by its
// first argument. Tandem's tests and demos run on it where neither a cluster nor a container engine is at hand.
//
// It must not change how any of the programs behaves: what the tests prove is true only of the real thing.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usage = "usage: control-plane etcd|kube-apiserver|kube-scheduler|kube-controller-manager [flags]"

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) {
		if len(os.Args) < 2 || !known(os.Args[1]) {
			fmt.Fprintln(os.Stderr, usage)
			os.Exit(2)
		}
		name = os.Args[1]
		// Each program parses os.Args itself and expects its own name at the front.
		os.Args = os.Args[1:]
	}
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	}
}

func known(name string) bool {
	switch name {
	case "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager":
		return true
	}
	return false
}
