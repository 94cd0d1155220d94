#!/bin/sh
# Makes sure that there is a ConfigMap fresh, and that its colour is blue.
set -eu
exec >/dev/null

# naive: create-or-update
if kubectl get configmap fresh; then
    kubectl patch configmap fresh --type=merge --patch='{"data":{"colour":"blue"}}'
else
    # If another client has created it since the read, this fails: AlreadyExists.
    kubectl create configmap fresh --from-literal=colour=blue
fi
# end
