#!/bin/bash
# build.sh deb|rpm: makes a package of what is built and checked out; it is put into $PACKAGES, which is
# target/packages if nothing else is said.
#
# `make deb` and `make rpm` build first and call this with $BUILD, the directory of the programs.
# Packages are made in a directory of their own, since dpkg-buildpackage wants debian/ at the top and
# puts its results into the directory above.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
results=$(realpath -m -- "${PACKAGES:-target/packages}")
work=$results/.work-$1

# The one place that has the version. A version before the release sorts before it: 1.0.0-rc.1 is
# 1.0.0~rc.1 to both dpkg and rpm.
version=$(sed -n '/^version = "\(.*\)"$/{s//\1/p;q}' Cargo.toml)
version=${version//-/"~"}
# A later commit is a later package, also as long as the version stays.
RELEASE=${RELEASE:-$(git rev-list --count HEAD 2> /dev/null || echo 1)}
# The same commit and toolchain, the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}
export SOURCE_DATE_EPOCH RELEASE PORTSD_SOURCE=$source

rm -rf "$work"
mkdir -p "$work"
case $1 in
    deb)
        mkdir "$work/portsd"
        cp -r packaging/debian "$work/portsd/debian"
        maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control)
        cat > "$work/portsd/debian/changelog" << EOF
portsd ($version-$RELEASE) unstable; urgency=medium

  * Built from the sources; see changelog.gz for what has changed.

 -- $maintainer  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
EOF
        (cd "$work/portsd" && dpkg-buildpackage --build=binary --unsigned-buildinfo --unsigned-changes)
        mv "$work"/*.deb "$results/"
        ;;
    rpm)
        # A policy that was compiled on Debian names types that Fedora and RHEL do not have. Who wants one in
        # the .rpm all the same, for a test, says which by PORTSD_POLICY.
        policy=--with
        [ ! -e /etc/debian_version ] || [ -n "${PORTSD_POLICY:-}" ] || policy=--without
        rpmbuild -bb --quiet "$policy" policy --define "_topdir $work" --define "_rpmdir $results" \
            --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
            --define "portsd_version $version" --define "portsd_release $RELEASE" \
            packaging/portsd.spec
        ;;
esac
rm -rf "$work"
echo "made $(find "$results" -name "portsd[-_]$version-${RELEASE}[._]*.$1")"
