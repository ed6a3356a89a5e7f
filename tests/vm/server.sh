# In the guest: runs every /host/NAME.sh, one beside the other; its output goes to NAME.log, its status to NAME.rc.
{ cat /proc/cpuinfo && echo 'cpu MHz : 2000.000'; } > /run/cpuinfo # the kubelet wants a clock rate, this kernel says none
mount --bind /run/cpuinfo /proc/cpuinfo
cp /proc/sys/kernel/random/boot_id /host/boot
while sleep 0.5; do
  for file in /host/*.sh; do
    name=${file%.sh}
    [ -e "$file" ] && mv "$file" "$name.running" || continue
    { sh "$name.running" > "$name.log" 2>&1; echo $? > "$name.part"; mv "$name.part" "$name.rc"; } &
  done
done
