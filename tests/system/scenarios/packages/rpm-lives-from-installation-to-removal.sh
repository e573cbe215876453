# Installed, upgraded while modules call, removed and installed again: see the script. What `make install`
# has put here goes first.
remove_portsd
[ "$TIER" = namespace ] || export BRIEF=yes
bash "$HERE/lifecycle.sh" "$HERE"/packages/portsd[-_]*-1[._]*.rpm "$HERE"/packages/portsd[-_]*-2[._]*.rpm
