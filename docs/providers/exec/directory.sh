#!/bin/sh
# A provider whose machines are files below $DIRECTORY. A real one starts a machine where this one makes a file, and its
# kubelet runs with --provider-id=directory://NAME.
set -eu
request=$(cat)
field() { printf '%s\n' "$request" | sed -n "s/^  \"$1\": \"\(.*\)\",*\$/\1/p"; }
pool=${DIRECTORY:-/tmp/machines}/$(field namespace)/$(field pool) machine=$(field machine) cluster=$(field cluster)
mkdir -p "$pool"
# Each file says from which template its machine is made, and for which cluster.
hash_of() { sed -n 1p "$pool/$1"; }
cluster_of() { sed -n 2p "$pool/$1"; }
if [ -f "$pool/$machine" ] && [ -n "$(cluster_of "$machine")" ] && [ "$(cluster_of "$machine")" != "$cluster" ]; then
    echo '{"error": {"message": "'"$machine"' is a machine of the cluster '"$(cluster_of "$machine")"'"}}'
    exit
fi
case $(field operation) in
create)
    quota=$(printf '%s\n' "$request" | sed -n 's/^    "quota": "\(.*\)",*$/\1/p')
    if [ ! -e "$pool/$machine" ] && [ "$(ls "$pool" | wc -l)" -ge "${quota:-1000}" ]; then
        echo '{"error": {"reason": "QuotaExceeded", "message": "all '"$quota"' machines are in use"}}'
    else
        [ -e "$pool/$machine" ] || printf '%s\n' "$(field templateHash)" "$cluster" > "$pool/$machine"
        echo '{}'
    fi ;;
list)
    for name in $(ls "$pool"); do
        list="${list:-} {\"name\": \"$name\", \"state\": \"Running\", \"providerID\": \"directory://$name\", \
            \"templateHash\": \"$(hash_of "$name")\", \"cluster\": \"$(cluster_of "$name")\"}"
    done
    printf '{"complete": true, "machines": [%s]}\n' "$(echo "${list:-}" | sed 's/} *{/}, {/g')" ;;
delete)
    rm -f "$pool/$machine" && echo '{"state": "Gone"}' ;;
esac
