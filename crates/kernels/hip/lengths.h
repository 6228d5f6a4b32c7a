// How full a cache is: lengths are the device's, and bounded here before anything is made of them.
DEV u32 filled_before(i64 length, i64 shift) {
  const i64 most = 0x7fffffff;
  i64 before = min_of(length, most << 8) + shift;
  return (u32)max_of((i64)0, min_of(before, most));
}
