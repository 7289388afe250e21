// Package types has the generic types of the generated bindings.
package types

const (
	OptionNone = 0
	OptionSome = 1
	ResultOk   = 0
	ResultErr  = 1
)

type Option[T any] struct {
	tag   uint8
	value T
}

func None[T any]() Option[T]        { return Option[T]{} }
func Some[T any](value T) Option[T] { return Option[T]{OptionSome, value} }
func (o Option[T]) Tag() uint8      { return o.tag }
func (o Option[T]) Some() T         { return o.value }

type Result[T, E any] struct {
	tag uint8
	ok  T
	err E
}

func Ok[T, E any](value T) Result[T, E]  { return Result[T, E]{tag: ResultOk, ok: value} }
func Err[T, E any](value E) Result[T, E] { return Result[T, E]{tag: ResultErr, err: value} }
func (r Result[T, E]) Tag() uint8        { return r.tag }
func (r Result[T, E]) Ok() T             { return r.ok }
func (r Result[T, E]) Err() E            { return r.err }

type Tuple2[A, B any] struct {
	F0 A
	F1 B
}
