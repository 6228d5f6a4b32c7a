// How full a cache is: lengths are on the device, and are clamped here before anything is derived from them.
DEV u32 filled_before(i64 length, i64 shift) {
  const i64 most = 0x7fffffff;
  i64 before = min_of(length, most << 8) + shift;
  return (u32)max_of((i64)0, min_of(before, most));
}
