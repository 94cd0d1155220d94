module tandem.dev/testbed/prometheus-operator

go 1.26.2

// Its definitions are files: nothing of it is built, so nothing imports it.
require github.com/prometheus-operator/prometheus-operator v0.85.0
