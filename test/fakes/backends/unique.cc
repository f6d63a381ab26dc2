// An inline variable of default visibility: STB_GNU_UNIQUE once it is exported.
template <class T>
struct [[gnu::visibility("default")]] Shared {
  static int value;
};
template <class T>
int Shared<T>::value = 0;

extern "C" [[gnu::visibility("default")]] int* tranche_fault_shared() { return &Shared<int>::value; }
