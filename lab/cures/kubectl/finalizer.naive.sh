#!/bin/sh
# Adds a finalizer to the ConfigMap settings.
set -eu
exec >/dev/null

# naive: finalizer
others=$(kubectl get configmap settings --output=jsonpath='{range .metadata.finalizers[*]}"{@}",{end}')
# A merge patch replaces the whole list. Without a version, one that was added since is lost.
kubectl patch configmap settings --type=merge \
    --patch="{\"metadata\":{\"finalizers\":[$others\"example.com/mine\"]}}"
# end
