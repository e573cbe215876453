# Installed, upgraded while modules call, removed and installed again: see the script. What `make install`
# has put here goes first.
remove_portsd
# a load of the policy takes half a minute under emulation
[ "$TIER" = namespace ] || export BRIEF=yes LAST=removal
bash "$HERE/lifecycle.sh" "$HERE"/packages/portsd[-_]*-1[._]*.rpm "$HERE"/packages/portsd[-_]*-2[._]*.rpm
