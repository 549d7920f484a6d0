// Writes drawn_shapes.json: the triangles that PyBullet's software renderer makes of primitive shapes.
//
//   g++ -O2 -DBT_USE_DOUBLE_PRECISION -I $BULLET/src -I $BULLET/examples/OpenGLWindow drawn_shapes.cpp
//       $BULLET/src/LinearMath/*.cpp $BULLET/src/BulletCollision/CollisionShapes/*.cpp
//       $BULLET/src/BulletCollision/BroadphaseCollision/bt{QuantizedBvh,Dbvt}.cpp -o drawn_shapes
//   ./drawn_shapes RADIUS LENGTH [RADIUS LENGTH ...] > drawn_shapes.json
//
// Spheres and cylinders are hulls of what supports them in 42 directions. Cylinders stand along z, have
// 32 corners at each end, and a margin of a millimetre. Lengths in metres.

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "BulletCollision/CollisionShapes/btConvexHullShape.h"
#include "BulletCollision/CollisionShapes/btShapeHull.h"
#include "BulletCollision/CollisionShapes/btSphereShape.h"
#include "ShapeData.h"

static const int kSteps = 32;
static const double kMargin = 0.001;

static void printHull(const btConvexShape& shape) {
  btShapeHull hull(&shape);
  hull.buildHull(0);
  printf("\"vertices\": [");
  for (int i = 0; i < hull.numVertices(); ++i) {
    const btVector3& v = hull.getVertexPointer()[i];
    printf("%s[%.17g,%.17g,%.17g]", i ? "," : "", v.x(), v.y(), v.z());
  }
  printf("],\n\"faces\": [");
  for (int i = 0; i < hull.numIndices(); i += 3) {
    const unsigned* face = hull.getIndexPointer() + i;
    printf("%s[%u,%u,%u]", i ? "," : "", face[0], face[1], face[2]);
  }
  printf("]}");
}

static void printCube() {
  const int stride = 9, place = 0, normal = 4;  // x, y, z, w, normal, texture
  const int count = sizeof(cube_vertices_textured) / sizeof(float) / stride;
  for (int start : {place, normal}) {
    printf(start == place ? "{\"vertices\": [" : "],\n\"normals\": [");
    for (int i = 0; i < count; ++i) {
      const float* v = cube_vertices_textured + i * stride + start;
      printf("%s[%g,%g,%g]", i ? "," : "", v[0], v[1], v[2]);
    }
  }
  printf("],\n\"faces\": [");
  for (size_t i = 0; i < sizeof(cube_indices) / sizeof(int); i += 3)
    printf("%s[%d,%d,%d]", i ? "," : "", cube_indices[i], cube_indices[i + 1], cube_indices[i + 2]);
  printf("]}");
}

int main(int count, char** words) {
  printf("{\"box of half extents 1\": ");
  printCube();
  printf(",\n\"sphere of radius 1\": {");
  printHull(btSphereShape(1));
  printf(",\n\"cylinders\": [");
  for (int w = 1; w + 1 < count; w += 2) {
    const double radius = atof(words[w]), length = atof(words[w + 1]);
    btAlignedObjectArray<btVector3> corners;
    for (int i = 0; i < kSteps; ++i) {
      const double angle = SIMD_2_PI * (float(i) / kSteps);
      for (int side : {1, -1})
        corners.push_back({radius * btSin(angle), radius * btCos(angle), side * length / 2});
    }
    btConvexHullShape cylinder(&corners[0].x(), corners.size(), sizeof(btVector3));
    cylinder.setMargin(kMargin);
    printf("%s\n{\"radius_m\": %s, \"length_m\": %s,\n", w > 1 ? "," : "", words[w], words[w + 1]);
    printHull(cylinder);
  }
  printf("\n]}\n");
}
