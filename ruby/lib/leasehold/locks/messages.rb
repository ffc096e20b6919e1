# frozen_string_literal: true

module Leasehold
  class Locks
    # Converts between the gem's values and the messages of sessions and locks.
    module Messages
      Wire = Contract::Leasehold::Locks::V1
      Sessions = Contract::Leasehold::Sessions::V1
      MAX_UINT32 = (2**32) - 1
      private_constant :MAX_UINT32

      extend Conversion

      class << self
        # @param slot [Integer] the number of a slot; 0 for the lock itself
        # @raise [Error::Invalid] if a part is no text. Its message quotes neither part (K24).
        def path(namespace, key, slot = 0)
          path = encode("namespace` or `key") { Wire::LockPath.new(namespace: text(namespace), key: text(key)) }
          encode("slot") { path.slot = slot }
          path
        end

        # Returns the part of an acquire that names a lock, and says how the ask shares it.
        #
        # @raise [Error::Invalid]
        # @return [Hash]
        def wanted(namespace, key, shared: false, permits: nil)
          { lock: path(namespace, key), **share(shared, permits) }
        end

        # Returns this part for one lock of several.
        #
        # @param lock [Array] a namespace and a key, and a Hash with the arguments of {wanted} if it is shared
        # @raise [Error::Invalid]
        # @return [Hash]
        def wanted_of(lock)
          raise ArgumentError unless lock.is_a?(Array)

          *name, share = lock.last.is_a?(Hash) ? lock : [*lock, {}]
          wanted(*name, **share)
        rescue ArgumentError
          # The message of the original error is left out, because it may quote a key.
          text = "a lock is no Array of a namespace and a key: pass one, with `shared:` or `permits:` at its end if it is shared"
          raise Error::Invalid.new(text, code: "INVALID_UPDATE"), cause: nil
        end

        # Returns the part of an acquire that says how the ask shares its lock (K13).
        #
        # @raise [Error::Invalid] if both are given, or `permits` is no number of permits
        # @return [Hash]
        def share(shared, permits)
          return { shared: shared ? true : false } if permits.nil?
          raise Error::Invalid.new("both `shared` and `permits` are given: pass one of them", code: "INVALID_UPDATE") if shared
          return { permits: permits } if permits.is_a?(Integer) && permits.between?(1, MAX_UINT32)

          raise Error::Invalid.new("`permits` is no number of permits: pass an Integer from 1 on", code: "INVALID_UPDATE")
        end

        def open(session_id, duration_micros, grace_micros)
          Sessions::OpenSessionRequest.new(
            session_id: session_id, duration_micros: duration_micros, grace_micros: grace_micros
          )
        end

        def renew(session_id)
          Sessions::RenewSessionRequest.new(session_id: session_id)
        end

        def close(session_id)
          Sessions::CloseSessionRequest.new(session_id: session_id)
        end

        # @param wanted [Hash] the path of the lock as `lock`, and the {share} of it
        def try_acquire(session_id, ask_id, wanted)
          Wire::TryAcquireLockRequest.new(session_id: session_id, ask_id: ask_id, **wanted)
        end

        # @param wanted [Hash] see {try_acquire}; also the asks that the caller holds, as `held_ask_ids`
        # @param seconds [Numeric] of at least a microsecond: the server would refuse a wait that is over
        def acquire(session_id, ask_id, wanted, seconds)
          encode("wait") do
            micros = [micros(seconds), 1].max
            Wire::AcquireLockRequest.new(session_id: session_id, ask_id: ask_id, wait_micros: micros, **wanted)
          end
        end

        # @param asks [Array<Hash>] each an `ask_id`, and what its ask has {wanted}
        # @param held_ask_ids [Array<String>] the asks that the caller holds
        def acquire_all(session_id, asks, held_ask_ids, seconds)
          encode("wait") do
            Wire::AcquireLocksRequest.new(
              session_id: session_id, asks: asks, held_ask_ids: held_ask_ids, wait_micros: micros(seconds)
            )
          end
        end

        def leave(session_id, ask_id)
          Wire::LeaveLockRequest.new(session_id: session_id, ask_id: ask_id)
        end

        def release(session_id, path, fence, failed, value)
          encode("value") do
            Wire::ReleaseLockRequest.new(
              session_id: session_id, lock: path, fence: fence, failed: failed, value: String(value).b
            )
          end
        end

        def get(namespace, key, slot)
          Wire::GetLockRequest.new(lock: path(namespace, key, slot))
        end

        def list(namespace, limit, after)
          after &&= path(after.namespace, after.key, after.slot || 0)
          encode("namespace` or `limit") { Wire::ListLocksRequest.new(namespace: text(namespace), limit: limit || 0, after: after) }
        end

        def force(path, fence, at_once)
          encode("fence") { Wire::ForceLockRequest.new(lock: path, fence: fence, at_once: at_once) }
        end

        # @raise [Error::Invalid]
        def reap(session_id, ask_id, namespace)
          encode("namespace") { Wire::ReapLockRequest.new(session_id: session_id, ask_id: ask_id, namespace: text(namespace)) }
        end

        # @param resolution [Symbol] `:retry` or `:cleaned`
        # @raise [Error::Invalid]
        def resolve(path, fence, resolution)
          unless %i[retry cleaned].include?(resolution)
            raise Error::Invalid.new("the resolution is unknown: pass `:retry` or `:cleaned`", code: "INVALID_UPDATE")
          end

          encode("fence") { Wire::ResolveOrphanRequest.new(lock: path, fence: fence, resolution: resolution.upcase) }
        end

        # @return [LockPage]
        def page(response)
          LockPage.new(locks: response.locks.map { |lock| status(lock) }, truncated: response.truncated)
        end

        # @return [LockStatus]
        def status(lock)
          LockStatus.new(
            namespace: lock.path.namespace, key: lock.path.key, state: symbol(lock.state),
            fence: (lock.fence unless lock.fence.zero?), session_id: uuid(lock.session_id),
            updated_at: time(lock.updated_at), waiting: lock.waiting, last: ended(lock.last),
            obituary: obituary(lock.obituary), slot: lock.path.slot, taken_slots: lock.taken_slots, permits: lock.permits
          )
        end

        # @return [Obituary, nil]
        def obituary(message)
          message && Obituary.new(
            fence: message.fence, reason: symbol(message.end), ended_at: time(message.ended_at),
            attempts: message.attempts, most_attempts: message.most_attempts
          )
        end

        # @return [Float]
        # @raise [Error::Invalid] if the time is negative or no number
        def seconds(wait)
          seconds = encode("wait") { Float(wait) }
          return seconds if seconds >= 0

          raise Error::Invalid.new("`wait` is negative or no number: pass seconds, 0 for now or never", code: "INVALID_UPDATE")
        end

        private

        def ended(grant)
          grant && EndedGrant.new(
            fence: grant.fence, reason: symbol(grant.end), value: grant.value, ended_at: time(grant.ended_at)
          )
        end
      end
    end
  end
end
