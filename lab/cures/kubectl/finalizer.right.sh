#!/bin/sh
# Adds a finalizer to the ConfigMap settings.
set -eu
exec >/dev/null

# right: finalizer
template='{.metadata.resourceVersion} {range .metadata.finalizers[*]}"{@}",{end}'
for _ in 1 2 3 4 5; do
    # The version and the list of one read.
    seen=$(kubectl get configmap settings --output=jsonpath="$template")
    version=${seen%% *} finalizers=${seen#* }
    case $finalizers in
    *'"example.com/mine"'*) exit 0 ;;
    esac
    # Refused if another client has written since: then it reads again.
    if kubectl patch configmap settings --type=json --patch="[
        {\"op\":\"test\",\"path\":\"/metadata/resourceVersion\",\"value\":\"$version\"},
        {\"op\":\"add\",\"path\":\"/metadata/finalizers\",\"value\":[$finalizers\"example.com/mine\"]}
    ]"; then
        exit 0
    fi
done
exit 1
# end
