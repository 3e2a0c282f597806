package virtual

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/alicebob/miniredis/v2"
)

// Snapshot copies everything that a miniredis holds. The library has no such function, so this reads its private
// fields.
func Snapshot(m *miniredis.Miniredis) reflect.Value {
	m.Lock()
	defer m.Unlock()
	dbs := Reachable(reflect.ValueOf(m).Elem().FieldByName("dbs"))
	self := map[unsafe.Pointer]reflect.Value{unsafe.Pointer(m): reflect.ValueOf(m)} //nolint:gosec // a key
	return deepCopy(dbs, self)
}

// rewind gives a miniredis the contents of a snapshot, as a failover to a replica that lags.
func rewind(m *miniredis.Miniredis, dbs reflect.Value) {
	m.Lock()
	defer m.Unlock()
	self := map[unsafe.Pointer]reflect.Value{unsafe.Pointer(m): reflect.ValueOf(m)} //nolint:gosec // a key
	dbs = deepCopy(dbs, self)                                                       // a snapshot may be used again
	Reachable(reflect.ValueOf(m).Elem().FieldByName("dbs")).Set(dbs)
}

// Reachable makes a private field accessible.
func Reachable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() //nolint:gosec // the library has no snapshot
}

// deepCopy copies a value and everything that it points to, each once.
func deepCopy(v reflect.Value, seen map[unsafe.Pointer]reflect.Value) reflect.Value {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return v
	}
	switch v.Kind() { //nolint:exhaustive // other kinds are copied by assignment
	case reflect.Pointer:
		return copyPointer(v, seen)
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			c.SetMapIndex(it.Key(), deepCopy(it.Value(), seen))
		}
		return c
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			c.Index(i).Set(deepCopy(v.Index(i), seen))
		}
		return c
	case reflect.Struct:
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		for i := range v.NumField() {
			f := Reachable(c.Field(i))
			f.Set(deepCopy(f, seen))
		}
		return c
	}
	return v
}

func copyPointer(v reflect.Value, seen map[unsafe.Pointer]reflect.Value) reflect.Value {
	if v.IsNil() {
		return v
	}
	if c, ok := seen[v.UnsafePointer()]; ok {
		return c
	}
	c := reflect.New(v.Type().Elem())
	seen[v.UnsafePointer()] = c
	c.Elem().Set(deepCopy(v.Elem(), seen))
	return c
}
