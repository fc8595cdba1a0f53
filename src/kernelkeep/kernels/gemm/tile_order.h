// In which order groups compute the tiles of C.

struct Place {
  int row, column;
};

// The tile of C for a turn. Neighbours in time are near each other, so that they find A and B in the cache.
__device__ __forceinline__ Place place_of(int turn, int down, int across) {
  int many = BAND * across;
  int first = turn / many * BAND;
  int rows = min(BAND, down - first);
  int within = turn % many;
  Place place;
  place.row = first + within % rows;
  place.column = within / rows;
  return place;
}
