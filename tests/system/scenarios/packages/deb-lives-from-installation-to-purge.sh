# Installed, upgraded while modules call, removed and purged: see the script. What `make install`
# has put here goes first.
remove_portsd
# a load of the policy takes half a minute under emulation
[ "$TIER" = namespace ] || export BRIEF=yes
bash "$HERE/lifecycle.sh" "$HERE"/packages/portsd[-_]*-1[._]*.deb "$HERE"/packages/portsd[-_]*-2[._]*.deb
