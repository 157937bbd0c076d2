#!/bin/sh
# Plays kubectl for tests: KUBECONFIG is a folder. Its file `looks` says how many looks come before a question stands.
cd "$KUBECONFIG" || exit 1
looks=$(cat looks)
[ "$looks" -gt 0 ] || touch stands
case "$*" in
*' patch '*--type=merge*)
    cat >/dev/null
    touch stands
    ;;
*' patch '*)
    cat >/dev/null
    if [ ! -e stands ]; then
        echo 'error: the test of the patch failed' >&2
        exit 1
    fi
    rm stands
    ;;
*' get '*)
    echo $((looks - 1)) >looks
    if [ -e stands ]; then cat asked; else cat free; fi
    ;;
esac
