#!/bin/sh
# Deletes the ConfigMap settings that was read.
set -eu
exec >/dev/null

# naive: delete-this-one
kubectl get configmap settings --output=yaml
# By now another object may have this name.
kubectl delete configmap settings
# end
