#!/bin/sh
# Deletes the ConfigMap settings that was read.
set -eu
exec >/dev/null

# right: delete-this-one
template='{.metadata.namespace} {.metadata.uid} {.metadata.resourceVersion}'
seen=$(kubectl get configmap settings --output=jsonpath="$template")
read -r namespace uid version <<END
$seen
END
# kubectl has no option for it: the UID says that object only, the version says only unchanged.
kubectl delete --raw="/api/v1/namespaces/$namespace/configmaps/settings" --filename=- <<END
{"apiVersion": "v1", "kind": "DeleteOptions",
 "preconditions": {"uid": "$uid", "resourceVersion": "$version"}}
END
# end
